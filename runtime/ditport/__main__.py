"""`python -m ditport`."""

import sys

from ditport.cli import main

sys.exit(main())
