-- Whose job a record is of: its number may be another user's by the time a daemon reads it.
ALTER TABLE leads ADD COLUMN user_id BIGINT;
