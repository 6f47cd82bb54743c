"""`python -m headstart` is the `headstart` command."""

from headstart.start import main

if __name__ == "__main__":
    main()
