"""The studies that heedful declares itself, as functions. `heedful study NAME --print` shows every setting of one."""
