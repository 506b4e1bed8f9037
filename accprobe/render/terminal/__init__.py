"""What is told, for the terminal; nothing else in accprobe imports rich."""
