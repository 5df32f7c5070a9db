"""What ships: lists, pages and checks of models and hardware."""
