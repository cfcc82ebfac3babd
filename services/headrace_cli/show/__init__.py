"""Answers for people: tables, trees and sentences."""
