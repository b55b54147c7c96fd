"""All access to the API server and to S3. The functions block; `handlers` calls them from threads."""
