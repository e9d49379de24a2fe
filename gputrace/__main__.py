"""`python -m gputrace`."""

from gputrace.cli import main

if __name__ == "__main__":
    main()
