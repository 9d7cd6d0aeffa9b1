-- Jobs that have ended: from them it is learned how long the next ones take.
CREATE TABLE ended_jobs (
    job BIGINT NOT NULL,
    submitted_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    owner TEXT NOT NULL,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    command_hash TEXT NOT NULL,
    min_nodes BIGINT NOT NULL,
    max_nodes BIGINT NOT NULL,
    gpus_per_node BIGINT NOT NULL,
    limit_secs DOUBLE PRECISION,
    work_secs DOUBLE PRECISION NOT NULL,
    said_secs DOUBLE PRECISION,
    samples DOUBLE PRECISION NOT NULL,
    secs DOUBLE PRECISION NOT NULL,
    exit_code BIGINT,
    why TEXT NOT NULL,
    PRIMARY KEY (job, submitted_at)
);
CREATE INDEX ended_jobs_by_end ON ended_jobs (ended_at, job, submitted_at);
