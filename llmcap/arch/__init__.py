"""What a model must do: parameters, state, FLOP, bytes and messages. No hardware here."""
