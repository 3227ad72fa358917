"""The rules of the contract: each module holds those on one subject."""
