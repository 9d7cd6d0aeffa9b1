-- When an ended job's loss would have been flat, as was first seen.
ALTER TABLE ended_jobs ADD COLUMN flat_secs DOUBLE PRECISION;
