"""The training companion: from Parquet samples to a model folder. Nothing else imports it."""
