-- Times are whole seconds since 1970 (UTC). JSON columns hold values of the program's own types.

-- One row a malleable job: what its generations are doing, written before anything is done about it.
CREATE TABLE lead (
    job          INTEGER NOT NULL PRIMARY KEY,
    submitted_at INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    ended        INTEGER NOT NULL,
    state        TEXT    NOT NULL
);
CREATE INDEX lead_open ON lead (ended, job);

CREATE TABLE generation (
    job        INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    nodes      TEXT    NOT NULL,
    why        TEXT    NOT NULL,
    PRIMARY KEY (job, generation, started_at)
);
CREATE INDEX generation_age ON generation (started_at);

CREATE TABLE round (
    id     INTEGER NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL,
    acted  INTEGER NOT NULL,
    plan   TEXT    NOT NULL,
    report TEXT    NOT NULL
);
CREATE INDEX round_age ON round (at);

CREATE TABLE gap (
    id        INTEGER NOT NULL PRIMARY KEY,
    node      TEXT    NOT NULL,
    node_type TEXT    NOT NULL,
    start_at  INTEGER NOT NULL,
    end_at    INTEGER NOT NULL,
    taken     INTEGER NOT NULL,
    block     INTEGER NOT NULL,
    planned   TEXT    NOT NULL
);
CREATE INDEX gap_age ON gap (end_at);

CREATE TABLE measurement (
    id        INTEGER NOT NULL PRIMARY KEY,
    signature TEXT    NOT NULL,
    node_type TEXT    NOT NULL,
    exec_plan TEXT    NOT NULL,
    nodes     INTEGER NOT NULL,
    samples   REAL    NOT NULL,
    secs      REAL    NOT NULL,
    at        INTEGER NOT NULL
);
CREATE INDEX measurement_of ON measurement (signature, at);
CREATE INDEX measurement_age ON measurement (at);

CREATE TABLE profile (
    signature  TEXT    NOT NULL,
    node_type  TEXT    NOT NULL,
    exec_plan  TEXT    NOT NULL,
    curve      TEXT    NOT NULL,
    costs      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (signature, node_type, exec_plan)
);

CREATE TABLE setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO setting (name, value) VALUES ('next_order', '1');
