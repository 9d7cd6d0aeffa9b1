-- The same tables as in SQLite. Times are whole seconds since 1970 (UTC). JSON is kept as text: nothing is searched
-- inside it.

-- Slurm's job ids wrap around; with the submission time they name a job for good.
CREATE TABLE leads (
    job BIGINT NOT NULL,
    submitted_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (job, submitted_at)
);
CREATE INDEX leads_by_end ON leads (ended, updated_at);

CREATE TABLE generations (
    job BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    nodes TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (job, generation)
);
CREATE INDEX generations_by_start ON generations (started_at);

CREATE TABLE rounds (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    planned_at BIGINT NOT NULL,
    plan TEXT NOT NULL,
    report TEXT NOT NULL,
    acted BOOLEAN NOT NULL
);
CREATE INDEX rounds_by_time ON rounds (planned_at);

CREATE TABLE gaps (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node TEXT NOT NULL,
    node_type TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    taken BOOLEAN NOT NULL,
    block BIGINT NOT NULL,
    planned TEXT NOT NULL
);
CREATE INDEX gaps_by_end ON gaps (ended_at, id);

CREATE TABLE profiles (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
CREATE INDEX profiles_by_time ON profiles (updated_at, id);

-- There are millions of these: they name their profile by its number.
CREATE TABLE measurements (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    profile BIGINT NOT NULL REFERENCES profiles (id) ON DELETE CASCADE,
    job BIGINT NOT NULL,
    nodes BIGINT NOT NULL,
    samples DOUBLE PRECISION NOT NULL,
    secs DOUBLE PRECISION NOT NULL,
    measured_at BIGINT NOT NULL,
    probe BOOLEAN NOT NULL,
    -- Also how they are looked for; an index of the numbers alone would have 20 MB a million and no use.
    PRIMARY KEY (profile, measured_at, id)
);
CREATE INDEX measurements_by_time ON measurements (measured_at);

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    content TEXT NOT NULL
);

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    next BIGINT NOT NULL
);

-- One row. Each daemon that takes the lead adds one, and writes only as long as the number is still its own.
CREATE TABLE leader (epoch BIGINT NOT NULL);
INSERT INTO leader (epoch) VALUES (0);
