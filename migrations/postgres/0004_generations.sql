-- Numbers of jobs are used again, and with them those of their generations: the moment tells them apart.
ALTER TABLE generations DROP CONSTRAINT generations_pkey;
ALTER TABLE generations ADD PRIMARY KEY (job, started_at, generation);
