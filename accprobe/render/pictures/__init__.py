"""Drawings for pages: trees and bits by themselves, sweeps by matplotlib."""
