"""Where prompts come from: one file a source, each with its columns, template, licence and hub, behind one table."""
