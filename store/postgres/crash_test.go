package postgres

func childMain() bool { return false }
