-- Numbers of jobs are used again, and with them those of their generations: the moment tells them apart.
CREATE TABLE generations_by_moment (
    job BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    nodes TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (job, started_at, generation)
);
INSERT INTO generations_by_moment (job, generation, started_at, nodes, why)
    SELECT job, generation, started_at, nodes, why FROM generations;
DROP TABLE generations;
ALTER TABLE generations_by_moment RENAME TO generations;
CREATE INDEX generations_by_start ON generations (started_at);
