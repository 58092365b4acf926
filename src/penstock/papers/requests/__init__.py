"""What to make again: requests and triggers as the paper of backfills has them."""
