"""What client and operator exchange besides the plan: keys of stored files, launch records, status.json, exit codes."""
