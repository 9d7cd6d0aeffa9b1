-- What nodes were used for, an hour a row.
CREATE TABLE node_hours (
    began_at BIGINT PRIMARY KEY,
    packed BYTEA NOT NULL
);
