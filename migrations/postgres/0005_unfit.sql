-- Sizes at which a program ran out of memory.
ALTER TABLE profiles ADD COLUMN unfit TEXT NOT NULL DEFAULT '[]';
