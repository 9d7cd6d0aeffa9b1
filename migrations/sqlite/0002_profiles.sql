-- What was learned, by whom and of what. Until now nothing read these two tables, so nothing is lost with them.
DROP TABLE measurements;
DROP TABLE profiles;

CREATE TABLE profiles (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    node_type TEXT NOT NULL,
    exec_plan TEXT NOT NULL,
    batch TEXT NOT NULL,
    points TEXT NOT NULL,
    costs TEXT NOT NULL,
    probes BIGINT NOT NULL,
    probe_secs DOUBLE PRECISION NOT NULL,
    jobs BIGINT NOT NULL,
    job_name TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (owner, name, node_type, exec_plan, batch)
);
CREATE INDEX profiles_by_time ON profiles (updated_at);

-- There are millions of these: they name their profile by its number.
CREATE TABLE measurements (
    id INTEGER PRIMARY KEY,
    profile BIGINT NOT NULL REFERENCES profiles (id) ON DELETE CASCADE,
    job BIGINT NOT NULL,
    nodes BIGINT NOT NULL,
    samples DOUBLE PRECISION NOT NULL,
    secs DOUBLE PRECISION NOT NULL,
    probe BOOLEAN NOT NULL,
    measured_at BIGINT NOT NULL
);
CREATE INDEX measurements_by_profile ON measurements (profile, measured_at);
CREATE INDEX measurements_by_time ON measurements (measured_at);
