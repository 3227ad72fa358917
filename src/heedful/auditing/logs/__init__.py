"""Logs of others as rows: files, their columns and values, and the episodes and faults that readers hand on."""
