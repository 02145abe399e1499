-- name: free_pages
PRAGMA freelist_count

-- name: vacuum
PRAGMA incremental_vacuum(256)
