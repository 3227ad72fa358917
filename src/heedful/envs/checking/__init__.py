"""The rules of the contract, one function each, and how environments are played for them. `check.check` runs all."""
