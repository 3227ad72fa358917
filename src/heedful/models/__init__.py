"""Language models: chat templates, replies, attention masks, folders on disk."""
