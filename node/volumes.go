package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/node/volume"
)

// The modes of files that say none.
const (
	fileMode  = fs.FileMode(0o644)
	emptyMode = fs.FileMode(0o777) // of an emptyDir: every user of the pod may write
)

// volumes keeps the volumes of pods as directories, dir/UID/NAME.
type volumes struct{ dir string }

func (v volumes) pod(uid types.UID) string { return filepath.Join(v.dir, string(uid)) }

// prepare makes every volume of the pod, and brings those that are made of
// objects up to date. It may be repeated at any time.
func (v volumes) prepare(ctx context.Context, s sources) error {
	var errs error
	for i := range s.pod.Spec.Volumes {
		vol := &s.pod.Spec.Volumes[i]
		if err := v.prepareOne(ctx, s, vol); err != nil {
			errs = errors.Join(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", vol.Name, err))
		}
	}
	return errs
}

func (v volumes) prepareOne(ctx context.Context, s sources, vol *corev1.Volume) error {
	dir := filepath.Join(v.pod(s.pod.UID), vol.Name)
	switch src := &vol.VolumeSource; {
	case src.EmptyDir != nil:
		if err := os.MkdirAll(dir, emptyMode); err != nil {
			return err
		}
		return os.Chmod(dir, emptyMode) // whatever the umask
	case src.HostPath != nil:
		return checkHostPath(src.HostPath)
	}
	files, err := s.files(ctx, vol)
	if err != nil {
		return err
	}
	_, err = volume.Write(dir, files)
	return err
}

// files are the files of a volume that is made of objects.
func (s sources) files(ctx context.Context, vol *corev1.Volume) (volume.Files, error) {
	switch src := &vol.VolumeSource; {
	case src.ConfigMap != nil:
		v := src.ConfigMap
		return s.chosen(ctx, configMapRef(v.Name, v.Optional), v.Items, mode(v.DefaultMode, fileMode))
	case src.Secret != nil:
		v := src.Secret
		return s.chosen(ctx, secretRef(v.SecretName, v.Optional), v.Items, mode(v.DefaultMode, fileMode))
	case src.DownwardAPI != nil:
		return s.downward(src.DownwardAPI.Items, mode(src.DownwardAPI.DefaultMode, fileMode))
	case src.Projected != nil:
		return s.projected(ctx, src.Projected)
	}
	return nil, errors.New("its source is not one that this agent has: " +
		"configMap, downwardAPI, emptyDir, hostPath, projected and secret are")
}

func (s sources) projected(ctx context.Context, p *corev1.ProjectedVolumeSource) (volume.Files, error) {
	all := volume.Files{}
	byDefault := mode(p.DefaultMode, fileMode)
	for _, src := range p.Sources {
		var files volume.Files
		var err error
		switch {
		case src.ConfigMap != nil:
			files, err = s.chosen(ctx, configMapRef(src.ConfigMap.Name, src.ConfigMap.Optional), src.ConfigMap.Items, byDefault)
		case src.Secret != nil:
			files, err = s.chosen(ctx, secretRef(src.Secret.Name, src.Secret.Optional), src.Secret.Items, byDefault)
		case src.DownwardAPI != nil:
			files, err = s.downward(src.DownwardAPI.Items, byDefault)
		default:
			err = errors.New("a projected source is not one that this agent has: " +
				"configMap, downwardAPI and secret are")
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

// chosen gives keys of an object their paths; without items it takes all keys.
func (s sources) chosen(
	ctx context.Context, r ref, items []corev1.KeyToPath, byDefault fs.FileMode,
) (volume.Files, error) {
	data, _, err := s.data(ctx, r)
	if err != nil {
		return nil, err
	}
	files := volume.Files{}
	if items == nil {
		for key, value := range data {
			files[key] = volume.File{Data: value, Mode: byDefault}
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && r.optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		files[filepath.Clean(item.Path)] = volume.File{Data: value, Mode: mode(item.Mode, byDefault)}
	}
	return files, nil
}

func (s sources) downward(items []corev1.DownwardAPIVolumeFile, byDefault fs.FileMode) (volume.Files, error) {
	files := volume.Files{}
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldValue(s.pod, item.FieldRef.FieldPath, s.facts)
		case item.ResourceFieldRef != nil:
			value, err = resourceValue(s.pod, nil, item.ResourceFieldRef, s.facts)
		default:
			err = errors.New("one of fieldRef and resourceFieldRef must be set")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Path, err)
		}
		files[filepath.Clean(item.Path)] = volume.File{Data: []byte(value), Mode: mode(item.Mode, byDefault)}
	}
	return files, nil
}

func mode(m *int32, byDefault fs.FileMode) fs.FileMode {
	if m == nil {
		return byDefault
	}
	return fs.FileMode(*m).Perm()
}

// checkHostPath makes or checks the path as its type says.
func checkHostPath(p *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if p.Type != nil {
		kind = *p.Type
	}
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(p.Path, 0o755)
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(p.Path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	info, err := os.Stat(p.Path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	m := info.Mode()
	ok := map[corev1.HostPathType]bool{
		corev1.HostPathDirectory: m.IsDir(),
		corev1.HostPathFile:      m.IsRegular(),
		corev1.HostPathSocket:    m&fs.ModeSocket != 0,
		corev1.HostPathCharDev:   m&fs.ModeCharDevice != 0,
		corev1.HostPathBlockDev:  m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0,
	}[kind]
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", p.Path, kind)
	}
	return nil
}

// mounts are the mounts of a container.
func (v volumes) mounts(pod *corev1.Pod, c *corev1.Container, values map[string]string) ([]Mount, error) {
	var mounts []Mount
	for _, m := range c.VolumeMounts {
		source, writable := "", false
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if vol.Name != m.Name {
				continue
			}
			source = filepath.Join(v.pod(pod.UID), vol.Name)
			if vol.HostPath != nil {
				source = vol.HostPath.Path
			}
			writable = vol.HostPath != nil || vol.EmptyDir != nil
		}
		if source == "" {
			return nil, fmt.Errorf("volumeMounts: volume %q: not found in the pod", m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = Expand(m.SubPathExpr, values)
		}
		if sub != "" {
			var err error
			if source, err = subPath(source, sub, writable); err != nil {
				return nil, fmt.Errorf("volumeMounts: volume %q: %w", m.Name, err)
			}
		}
		target := m.MountPath
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
		mounts = append(mounts, Mount{
			Name: m.Name, Source: source, Target: filepath.Clean(target), ReadOnly: m.ReadOnly || !writable,
		})
	}
	return mounts, nil
}

// subPath is a path inside a volume. A link in it may not lead out: it might
// have been put there by a container.
func subPath(dir, sub string, writable bool) (string, error) {
	if !filepath.IsLocal(sub) {
		return "", fmt.Errorf("subPath: found %q, which must stay inside the volume", sub)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("subPath: %w", err)
	}
	defer root.Close()
	if _, err := root.Stat(sub); errors.Is(err, fs.ErrNotExist) && writable {
		if err := root.MkdirAll(sub, 0o755); err != nil {
			return "", fmt.Errorf("subPath: %w", err)
		}
	} else if err != nil {
		return "", fmt.Errorf("subPath: %w", err)
	}
	// What a volume of files shows is a link to its current version; a mount of
	// one file keeps the version that it was made with.
	resolved, err := filepath.EvalSymlinks(filepath.Join(dir, sub))
	if err != nil {
		return "", fmt.Errorf("subPath: %w", err)
	}
	return resolved, nil
}

// pods are the pods that have volumes here.
func (v volumes) pods() ([]types.UID, error) {
	entries, err := os.ReadDir(v.dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	uids := make([]types.UID, 0, len(entries))
	for _, e := range entries {
		uids = append(uids, types.UID(e.Name()))
	}
	return uids, nil
}

// remove deletes the volumes of a pod.
func (v volumes) remove(uid types.UID) error { return os.RemoveAll(v.pod(uid)) }
