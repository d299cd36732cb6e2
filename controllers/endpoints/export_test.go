package endpoints

type (
	Snapshot = snapshot
	Mirrored = mirrored
)

var (
	Plan         = plan
	Mirror       = mirror
	NewPublisher = newPublisher
	NewMirrorer  = newMirrorer
)
