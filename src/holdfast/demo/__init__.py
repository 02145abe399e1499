"""The demo: an agent pays invoices in processes that are killed again and again. `holdfast demo` runs it."""
