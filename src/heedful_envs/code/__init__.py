"""Programs: written by the agent, run in a sandbox, judged by tests that the agent never sees."""
