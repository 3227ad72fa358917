"""With a conftest here, pytest lets the folders below import the modules of this folder."""
