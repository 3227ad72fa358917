"""What the environment of a vLLM server imports: `--worker-extension-cls heedful.integrations.vllm.worker.Worker`."""

__all__: list[str] = []
