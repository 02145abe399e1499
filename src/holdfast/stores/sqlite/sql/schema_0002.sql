-- Data keys of encrypted namespaces, each wrapped by the user's key `name`. Encrypted data refers to its key by `id`.
CREATE TABLE data_key (
    namespace BLOB NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    wrapped BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX data_key_by_id ON data_key (namespace, id);
