"""`python -m gateway` is the `headstart` command."""

from gateway.start import main

if __name__ == "__main__":
    main()
