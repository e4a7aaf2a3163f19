"""Labelled nodes to a durable index on disk and back.

Nothing lives here yet: segments, postings and statistics arrive with the Spark job.
"""
