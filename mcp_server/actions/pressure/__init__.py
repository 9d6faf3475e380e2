"""What happens when a session grows: its live context, what leaves it, and how that comes back."""
