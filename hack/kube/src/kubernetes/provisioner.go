package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	annotationSelectedNode  = "volume.kubernetes.io/selected-node"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	syncPeriod              = 300 * time.Millisecond
)

// provisioner gives each claim of its storage classes a folder of this node as a local volume, once the scheduler has
// chosen the node, and removes folder and volume when the claim is gone. It asks the API again and again instead of
// watching: with one node and a handful of claims that is the shorter program.
type provisioner struct {
	api    kubernetes.Interface
	folder string
	name   string
}

func newProvisionerCommand() *cobra.Command {
	var kubeconfig string
	p := &provisioner{}
	cmd := &cobra.Command{
		Use:          "volume-provisioner",
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("kubeconfig %q: %w", kubeconfig, err)
			}
			if p.api, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			return p.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the cluster")
	cmd.Flags().StringVar(&p.folder, "folder", "", "where the volumes' folders are made")
	cmd.Flags().StringVar(&p.name, "name", "penstock.dev/folder", "provisioner name in storage classes")
	return cmd
}

func (p *provisioner) run(ctx context.Context) error {
	ticker := time.NewTicker(syncPeriod)
	defer ticker.Stop()
	for {
		if err := errors.Join(p.provisionPending(ctx), p.removeReleased(ctx)); err != nil {
			klog.ErrorS(err, "will be tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// cached lets the API server answer from its cache, so that polling costs etcd nothing.
func cached() metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: "0"}
}

func (p *provisioner) provisionPending(ctx context.Context) error {
	classes, err := p.api.StorageV1().StorageClasses().List(ctx, cached())
	if err != nil {
		return err
	}
	ours := sets.New[string]()
	for _, class := range classes.Items {
		if class.Provisioner == p.name {
			ours.Insert(class.Name)
		}
	}
	claims, err := p.api.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, cached())
	if err != nil {
		return err
	}
	var failed []error
	for i := range claims.Items {
		if claim := &claims.Items[i]; waits(claim) && ours.Has(*claim.Spec.StorageClassName) {
			failed = append(failed, p.provision(ctx, claim))
		}
	}
	return errors.Join(failed...)
}

// waits tells whether a claim has a node but no volume yet.
func waits(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimPending && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" &&
		claim.Spec.StorageClassName != nil && claim.Annotations[annotationSelectedNode] != ""
}

func (p *provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	folder := filepath.Join(p.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	// Any uid may write: the pod's fsGroup is only known to the kubelet, which sets it afterwards.
	if err := os.Chmod(folder, 0o777); err != nil { //nolint:gosec
		return err
	}
	_, err := p.api.CoreV1().PersistentVolumes().Create(ctx, p.volume(name, folder, claim), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // made in an earlier round, the claim's phase just lags behind
	}
	if err == nil {
		klog.InfoS("made", "volume", name, "claim", klog.KObj(claim))
	}
	return err
}

func (p *provisioner) volume(name, folder string, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	onNode := corev1.NodeSelectorRequirement{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{claim.Annotations[annotationSelectedNode]},
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationProvisionedBy: p.name}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{onNode}}},
			}},
		},
	}
}

func (p *provisioner) removeReleased(ctx context.Context) error {
	volumes, err := p.api.CoreV1().PersistentVolumes().List(ctx, cached())
	if err != nil {
		return err
	}
	var failed []error
	for i := range volumes.Items {
		if volume := &volumes.Items[i]; p.released(volume) {
			failed = append(failed, p.remove(ctx, volume.Name))
		}
	}
	return errors.Join(failed...)
}

func (p *provisioner) released(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[annotationProvisionedBy] == p.name && volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && volume.DeletionTimestamp == nil
}

func (p *provisioner) remove(ctx context.Context, name string) error {
	if err := os.RemoveAll(filepath.Join(p.folder, name)); err != nil {
		return err
	}
	err := p.api.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	klog.InfoS("removed", "volume", name)
	return nil
}
