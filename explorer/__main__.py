"""`python3 -m explorer`: see explorer/maker.py."""

from explorer.maker import main

if __name__ == "__main__":
    main()
