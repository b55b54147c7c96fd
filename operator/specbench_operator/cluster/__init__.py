"""The only room that talks to the API server and to S3. Everything here blocks; handlers call it from threads."""
