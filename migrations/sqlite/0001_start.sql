-- Times are whole seconds since 1970 (UTC). JSON is kept as text: nothing is searched inside it.

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
    id INTEGER PRIMARY KEY,
    planned_at BIGINT NOT NULL,
    plan TEXT NOT NULL,
    report TEXT NOT NULL,
    acted BOOLEAN NOT NULL
);
CREATE INDEX rounds_by_time ON rounds (planned_at);

CREATE TABLE gaps (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    node_type TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    taken BOOLEAN NOT NULL,
    block BIGINT NOT NULL,
    planned TEXT NOT NULL
);
CREATE INDEX gaps_by_end ON gaps (ended_at);

CREATE TABLE measurements (
    id INTEGER PRIMARY KEY,
    signature TEXT NOT NULL,
    node_type TEXT NOT NULL,
    exec_plan TEXT NOT NULL,
    nodes BIGINT NOT NULL,
    samples DOUBLE PRECISION NOT NULL,
    secs DOUBLE PRECISION NOT NULL,
    measured_at BIGINT NOT NULL
);
CREATE INDEX measurements_by_signature ON measurements (signature, measured_at);
CREATE INDEX measurements_by_time ON measurements (measured_at);

CREATE TABLE profiles (
    signature TEXT NOT NULL,
    node_type TEXT NOT NULL,
    exec_plan TEXT NOT NULL,
    curve TEXT NOT NULL,
    costs TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (signature, node_type, exec_plan)
);

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    content TEXT NOT NULL
);

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    next BIGINT NOT NULL
);
