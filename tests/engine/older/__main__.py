import sys

from tests.engine.older import write

write(*sys.argv[1:])
