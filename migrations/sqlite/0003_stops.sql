-- How the jobs of a profile have stopped when they were asked to.
ALTER TABLE profiles ADD COLUMN stops TEXT NOT NULL DEFAULT '[]';
