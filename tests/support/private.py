"""What no report may have: what names the machine that was measured, as regular expressions."""

PRIVATE = {
    "a path": r"(?<![\w.])/(?:home|root|tmp|usr|work|mnt|opt|var)\b|[A-Za-z]:\\\\",
    "a UUID": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|GPU-[0-9a-fA-F]{8}",
    "a bus address": r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9]\b",
    "an IP address": r"\b(?:10|127|172|192)\.\d+\.\d+\.\d+\b",
    "a host name": r"hostname|localhost|\.local\b|\bip-\d+-\d+|\w@\w",
}
