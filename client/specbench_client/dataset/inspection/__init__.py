"""What a set of prompts looks like before anything is measured with it. Pure: texts in, findings and figures out."""
