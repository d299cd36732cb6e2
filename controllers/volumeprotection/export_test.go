package volumeprotection

var (
	NewClaims  = newClaims
	NewVolumes = newVolumes
)
