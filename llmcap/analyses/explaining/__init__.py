"""Why a number is what it is: derivations operator by operator, and sides compared."""
