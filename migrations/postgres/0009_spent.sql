-- What became of the node-time that malleable jobs held, by the hour.
CREATE TABLE node_time (
    began_at BIGINT NOT NULL,
    account TEXT NOT NULL,
    owner TEXT NOT NULL,
    node_type TEXT NOT NULL,
    useful_secs DOUBLE PRECISION NOT NULL,
    rescale_secs DOUBLE PRECISION NOT NULL,
    preempted_secs DOUBLE PRECISION NOT NULL,
    probing_secs DOUBLE PRECISION NOT NULL,
    gpu_secs DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (began_at, account, owner, node_type)
);

-- Main jobs that started on nodes that malleable ones were on, and how long they had waited for these.
CREATE TABLE main_delays (
    job BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    secs DOUBLE PRECISION NOT NULL,
    planned BOOLEAN NOT NULL,
    PRIMARY KEY (job, started_at)
);

CREATE INDEX main_delays_by_start ON main_delays (started_at);

-- Node-seconds by what nodes were used for, by the hour.
CREATE TABLE node_uses (
    began_at BIGINT PRIMARY KEY,
    main_secs DOUBLE PRECISION NOT NULL,
    malleable_secs DOUBLE PRECISION NOT NULL,
    idle_secs DOUBLE PRECISION NOT NULL,
    wanted_secs DOUBLE PRECISION NOT NULL,
    refused_secs DOUBLE PRECISION NOT NULL,
    down_secs DOUBLE PRECISION NOT NULL
);
