"""Texts that look like errors, for property tests."""

from hypothesis import strategies as st

# Words, numbers, codes, paths and quotes thrown together.
_pieces = st.sampled_from(
    [
        "error", "404", "HTTP", "503", "errno", "2", "exit", "code", "1", "'users'", '"id"', "/usr/lib/x.py",
        "0xdead", "10.0.0.1:80", "12:30:01", "2026-01-01", "-5", "3.14", "https://a.b/c?d=1", "me@x.org",
        "ValueError:", "Traceback", "(most", "recent", "call", "last)", "\n", "<n>", "<path>", "status=500", "code:",
        "7",
    ]
)  # fmt: skip
error_like = st.lists(_pieces, max_size=12).map(" ".join)
any_text = st.text(max_size=300) | error_like
