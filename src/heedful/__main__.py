"""`python -m heedful` and `torchrun -m heedful`, the same as the `heedful` command."""

if __name__ == "__main__":
    from heedful.cli import main

    main()
