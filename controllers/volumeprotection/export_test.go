package volumeprotection

var (
	NewClaims  = newClaims
	NewVolumes = newVolumes
	NewClasses = newClasses
)
