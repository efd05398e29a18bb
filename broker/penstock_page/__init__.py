"""The pages about lag as HTML: pure rendering from documents, for the observer's page and for `penstock lag report`."""
